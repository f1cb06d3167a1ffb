"""How registrations reach the running PyTorch: its bindings, `torch.library`, and the errors that come back."""
