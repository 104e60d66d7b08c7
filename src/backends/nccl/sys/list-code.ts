/**
 * Machine code that makes the C calls of a list one after another, for x86-64 and the calling convention of System V.
 *
 * A list is calls of nine words each: the function's address and eight arguments, which are integers or pointers; the first
 * six go into registers, the others onto the stack, where a function that takes fewer does not look. A function that is null
 * ends the list, and so does a call that gives another status than 0. The code takes no arguments: it finds the list's address
 * in its mailbox, a word in the page behind it, and leaves there the address of the call that it ended at. It has no tables
 * for unwinding the stack: a debugger's backtrace out of a call ends here.
 */
import type { MachineCode } from "./code-memory.ts";

/** Arguments that a call of a list can have. */
export const mostArguments = 8;
/** The words of a call: its function and its arguments. */
export const wordsPerCall = 1 + mostArguments;

export const listCode: MachineCode = [
  ["endbr64", "f3 0f 1e fa"],
  ["push %rbx", "53"],
  ["mov mailbox(%rip), %rbx", "48 8b 1d f4 0f 00 00"],
  ["next: mov (%rbx), %rax", "48 8b 03"],
  ["test %rax, %rax", "48 85 c0"],
  ["je end", "74 2e"],
  // Two words more keep the stack where calls want it: at a multiple of 16.
  ["push 64(%rbx)", "ff 73 40"],
  ["push 56(%rbx)", "ff 73 38"],
  ["mov 8(%rbx), %rdi", "48 8b 7b 08"],
  ["mov 16(%rbx), %rsi", "48 8b 73 10"],
  ["mov 24(%rbx), %rdx", "48 8b 53 18"],
  ["mov 32(%rbx), %rcx", "48 8b 4b 20"],
  ["mov 40(%rbx), %r8", "4c 8b 43 28"],
  ["mov 48(%rbx), %r9", "4c 8b 4b 30"],
  ["call *%rax", "ff d0"],
  ["add $16, %rsp", "48 83 c4 10"],
  // The next call comes when this one's status is 0; at the end of the list `rax` is the null that ended it.
  ["test %eax, %eax", "85 c0"],
  ["jne end", "75 06"],
  ["add $72, %rbx", "48 83 c3 48"],
  ["jmp next", "eb ca"],
  ["end: mov %rbx, mailbox(%rip)", "48 89 1d b7 0f 00 00"],
  ["pop %rbx", "5b"],
  ["ret", "c3"],
];
