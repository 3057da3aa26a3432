"""What installs the operator, read as text: no helm, no kubectl, no cluster. What they make of it is for e2e/."""
