"""The report: one HTML page with everything in it, for people. `gather` runs the analyses, `page` draws them."""
