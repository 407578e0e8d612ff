"""What is wrong with a group, or with what its cluster gives it: pure rules over gathered facts.

`examination` asks the cluster, each ``rules`` module judges one kind of facts, `diagnosis` puts them together.
"""
