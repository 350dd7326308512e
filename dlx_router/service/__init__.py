"""The router: consume → decide → publish → settle."""
