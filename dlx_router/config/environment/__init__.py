"""Variables `DLX_ROUTER_*`: settings of the process."""
