"""What frontends show of results, as text: words, figures, reports. Pure; called by the gateway and by Discord."""
