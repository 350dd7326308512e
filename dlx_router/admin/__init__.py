"""What Kubernetes and people ask over HTTP."""
