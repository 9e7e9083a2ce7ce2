"""Plots: functions of a trace or a record; no model is ever loaded here."""
