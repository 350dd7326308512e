"""Backtest: what other policies would have decided about the letters that the archive knows.

`replay` judges one recorded arrival by the router's own `decide()`; `differences` does so on Spark; `estimate` says
what would probably have come of it, with an interval, because that nobody recorded.
"""
