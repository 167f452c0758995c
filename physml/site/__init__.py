"""The results as web pages: static, without torch, from the same tables as Markdown and CSV."""
