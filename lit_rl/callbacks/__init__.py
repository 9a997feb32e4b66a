"""Lightning callbacks: the resumable checkpoint of each epoch, the progress bar, ending a stage at a return."""
