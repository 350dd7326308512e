"""Advice: what retries achieved → what policies should say, with reasons; or to keep them. See docs/advice.md.

`query` counts on Spark; everything else is pure: counts in, advice out.
"""
