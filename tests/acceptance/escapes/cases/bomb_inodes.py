"""
why: A million files end at the file system's number of inodes; none reaches the disk, none outlives the container.
alone: its files stay behind and leave no inode to others
relax: inodes
gvisor: wrong_answer
gvisor_why: its memory file systems count no inodes; what they take is memory and ends at that limit
"""
made = 0
try:
    if not REHEARSAL:
        os.mkdir("/tmp/many")
        directory = os.open("/tmp/many", os.O_RDONLY)
        while made < 210_000:
            os.mknod(str(made), dir_fd=directory)
            made += 1
except OSError as error:
    if error.errno != errno.ENOSPC:
        breach(f"making files failed otherwise: {error}")
if made >= 210_000:
    breach("more files than inodes")
