"""What goes out with a release, from a clone: licences, pins, wheels and a trial of them (`make delivery`)."""
