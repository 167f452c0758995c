"""Downloads and hubs that files of data sets come from."""
