/**
 * Machine code that a thread begins with and ends at: it makes C calls one after another and says when it is through. For
 * x86-64 and the calling convention of System V.
 *
 * It is given the address of a record: two words for the outcome, then calls, of which each has the function's address, six
 * words that go into registers and sixteen that go onto the stack, where arguments by value are that are too large for
 * registers. A function that takes fewer does not look at the others. A function that is null ends the calls, and so does one
 * that gives another status than 0. Then the outcome is written: first the address of the call that it ended at into the
 * second word, then the status into the lower half of the first and 1 into the upper, at once. It has no tables for unwinding
 * the stack: a debugger's backtrace out of a call ends here.
 */
import type { MachineCode } from "./code-memory.ts";

/** Words before the calls: the outcome. */
export const outcomeWords = 2;
/** Arguments that go into registers. */
export const registerWords = 6;
/** Words that go onto the stack. */
export const stackWords = 16;
/** The words of a call. */
export const wordsPerCall = 1 + registerWords + stackWords;

export const threadCode: MachineCode = [
  ["endbr64", "f3 0f 1e fa"],
  ["push %rbx", "53"],
  ["push %r12", "41 54"],
  // One word more than the calls look at keeps the stack where they want it: at a multiple of 16.
  ["sub $136, %rsp", "48 81 ec 88 00 00 00"],
  ["mov %rdi, %r12", "49 89 fc"],
  ["lea 16(%rdi), %rbx", "48 8d 5f 10"],
  ["next: mov (%rbx), %rax", "48 8b 03"],
  ["test %rax, %rax", "48 85 c0"],
  ["je end", "74 36"],
  ["lea 56(%rbx), %rsi", "48 8d 73 38"],
  ["mov %rsp, %rdi", "48 89 e7"],
  ["mov $16, %ecx", "b9 10 00 00 00"],
  ["rep movsq", "f3 48 a5"],
  ["mov 8(%rbx), %rdi", "48 8b 7b 08"],
  ["mov 16(%rbx), %rsi", "48 8b 73 10"],
  ["mov 24(%rbx), %rdx", "48 8b 53 18"],
  ["mov 32(%rbx), %rcx", "48 8b 4b 20"],
  ["mov 40(%rbx), %r8", "4c 8b 43 28"],
  ["mov 48(%rbx), %r9", "4c 8b 4b 30"],
  ["call *%rax", "ff d0"],
  // The next call comes when this one's status is 0; behind the last `rax` is the null that ended them.
  ["test %eax, %eax", "85 c0"],
  ["jne end", "75 09"],
  ["add $184, %rbx", "48 81 c3 b8 00 00 00"],
  ["jmp next", "eb c2"],
  ["end: mov %rbx, 8(%r12)", "49 89 5c 24 08"],
  ["mov %eax, %eax", "89 c0"],
  ["bts $32, %rax", "48 0f ba e8 20"],
  ["mov %rax, (%r12)", "49 89 04 24"],
  ["add $136, %rsp", "48 81 c4 88 00 00 00"],
  ["pop %r12", "41 5c"],
  ["pop %rbx", "5b"],
  ["xor %eax, %eax", "31 c0"],
  ["ret", "c3"],
];
