"""Downloads, mirrors and hubs that files of data sets come from."""
