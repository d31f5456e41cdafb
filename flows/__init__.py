"""What Prefect runs. Commands and workers import this first: from here on no proxy stands before loopback."""

from servegrid.host.process_environment import bypass_proxies_on_loopback

bypass_proxies_on_loopback()
