"""The chapters executed (`build`), checked (`check`), linked (`links`) and made a site (`site`)."""

from ..base.extras import needs

needs("book", "bs4", "jupytext", "latex2mathml", "nbconvert")
