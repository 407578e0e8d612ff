"""The doctor: `examination` asks the cluster, and each ``rules`` module judges one kind of facts."""
