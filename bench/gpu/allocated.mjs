// Bytes that malloc has given out in this process and not got back. Memory that an allocator keeps for later is resident, but free:
// glibc has an arena for some threads each, and every one keeps the most that was ever taken from it at once.
import koffi from "koffi";

/**
 * The fields of malloc(3)'s report on all arenas, in its order: bytes in use are `uordblks` of them and `hblkhd` of maps
 * of their own.
 */
const fields = [
  ...["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks"],
  ...["fordblks", "keepcost"],
];

/** A function that reads them; NaN where there is no glibc 2.33 or newer. */
export function allocatedBytes() {
  try {
    const mallinfo2Struct = koffi.struct(
      Object.fromEntries(fields.map((name) => [name, "size_t"])),
    );
    const mallinfo2 = koffi.load("libc.so.6").func("mallinfo2", mallinfo2Struct, []);
    return () => {
      const { uordblks, hblkhd } = mallinfo2();
      return Number(uordblks) + Number(hblkhd);
    };
  } catch {
    return () => Number.NaN;
  }
}
