"""Small operations of known architectures as kernels, each checked on the model itself before it is used."""
