"""The pipeline on Spark: the journal's archive, what is read out of it, and letters in bulk. The router never imports it."""
