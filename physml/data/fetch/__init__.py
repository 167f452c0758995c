"""Where files of data sets are, and how they come here."""
