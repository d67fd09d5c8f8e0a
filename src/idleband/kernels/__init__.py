"""Small compiled pieces that policies and the environment share."""
