"""The pipeline on Spark: the journal's archive, what is read out of it. The router never imports it."""
