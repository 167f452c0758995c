"""Models: nn.Modules that know no loss, no data set, no device."""
