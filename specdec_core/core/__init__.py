"""The loop and its mathematics: tree, rules, randomness, sampling, stopping, trace, and the contract."""

from ..base.lazy import face

__getattr__, __dir__ = face(
    __name__,
    {
        ".contract": ["Budget", "Choices", "Drafter", "DrafterBase", "LanguageModel", "LMOutput", "NullDrafter"],
        ".engine": ["Generation", "Run", "generate", "one_by_one", "stream", "together"],
        ".recorded": ["Recorded"],
        ".rng": ["Rng", "enumerate_law", "pick_at", "spawn", "total_variation"],
        ".rules": [
            "Greedy", "Lossless", "Trial", "Verdict", "accept_probability", "clip", "residual", "verify", "without",
        ],
        ".sampling": ["Sampling", "argmax", "softmax"],
        ".stopping": ["Stop"],
        ".toy": ["TableLM"],
        ".trace": ["FIELDS", "PHASES", "Step", "Steps", "Trace"],
        ".tree": ["DraftTree"],
        ".typical": ["Typical", "distance", "generation_law", "threshold"],
    },
)
