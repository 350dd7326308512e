"""`dlx-router pipeline`: the archive and what is read out of it, on Spark."""
