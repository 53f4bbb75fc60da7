"""The part of the gate that runs with the .NET libraries loaded, in a process of its own."""
