/** The one line that a long run prints. */
import type { Checked } from "./law.ts";

/** Such as `seed 7: 20000 programs, 51000 communicators, 88820 calls in 70.6 s`. */
export function totals({ seed, programs, communicators, calls }: Checked, began: number): string {
  const seconds = ((performance.now() - began) / 1000).toFixed(1);
  return `seed ${seed}: ${programs} programs, ${communicators} communicators, ${calls} calls in ${seconds} s`;
}
