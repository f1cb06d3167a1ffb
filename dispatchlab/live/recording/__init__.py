"""What importing packages registers: watched, recorded as scenarios, and tried in every order."""
