"""Programs that print `ok`, one a language: what a compiler or interpreter must manage here before it judges anybody's.

A tool that cannot start in the sandbox, load its libraries, find its linker or live within the limits fails on these too.
"""

from __future__ import annotations

from pathlib import PurePath

SOURCES = {
    "awk": 'BEGIN { print "ok" }',
    "c": '#include <stdio.h>\nint main(void) { puts("ok"); return 0; }',
    "cpp": '#include <iostream>\nint main() { std::cout << "ok" << std::endl; return 0; }',
    "cs": 'public class Program { public static void Main() { System.Console.WriteLine("ok"); } }',
    "d": 'import std.stdio;\nvoid main() { writeln("ok"); }',
    "f90": "program main\n  print '(a)', 'ok'\nend program main",
    "go": 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("ok") }',
    "hs": 'main :: IO ()\nmain = putStrLn "ok"',
    "java": 'public class {name} {{ public static void main(String[] args) {{ System.out.println("ok"); }} }}',
    "jl": 'println("ok")',
    "js": 'console.log("ok");',
    "kt": 'fun main() { println("ok") }',
    "lua": 'print("ok")',
    "ml": 'let () = print_endline "ok"',
    "nim": 'echo "ok"',
    "pas": "program main;\nbegin\n  writeln('ok');\nend.",
    "php": '<?php echo "ok\\n";',
    "pl": 'print "ok\\n";',
    "py": 'print("ok")',
    "r": 'cat("ok\\n")',
    "rb": 'puts "ok"',
    "rs": 'fn main() { println!("ok"); }',
    "scala": 'object {name} {{ def main(args: Array[String]): Unit = println("ok") }}',
    "sh": "echo ok",
    "swift": 'print("ok")',
    "tcl": "puts ok",
}
"""By ending of the source file; with `{name}`, braces are doubled and the file's name goes in."""
SAME = {"bash": "sh", "cc": "cpp", "cjs": "js", "cxx": "cpp", "mjs": "js", "ts": "js"}


def hello(file: str) -> str | None:
    """A program for a source file of this name; None where its ending is of no language known here."""
    path = PurePath(file)
    ending = path.suffix.lstrip(".").lower()
    text = SOURCES.get(SAME.get(ending, ending))
    if text is None:
        return None
    return (text.format(name=path.stem) if "{name}" in text else text) + "\n"
