"""A tanh step added to a linear one: Lipschitz RNN, AntisymmetricRNN, FastRNN."""
