"""
why: References and hidden cases lie in a directory of the judge's own.
boards: [judge]
relax: one_uid
"""
refused("/judge listed", os.listdir, "/judge")
refused("/judge/reference.py", read, "/judge/reference.py")
refused("/judge written", write, "/judge/reference.py", b"")
refused("/judge moved", os.rename, "/judge", "/tmp/judge", also=(errno.EBUSY, errno.EROFS, errno.EXDEV))
refused("/judge opened to all", os.chmod, "/judge", 0o777)
refused("/judge as current directory", os.chdir, "/judge")
