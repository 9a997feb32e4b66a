"""Experience: what algorithms ask for (plans), how it is collected, kept and handed out, and how policies are evaluated."""
