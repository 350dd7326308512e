"""Every test of dlx-router."""
