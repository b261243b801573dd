"""What torch computes: singular values, softmax rows. Imported only where a plan needs it."""
