/** Which chain does a dtype and an operator: eight numbers for each dtype. */
import { chain, Max, Min, Prod, scaledChain, Sum } from "./chain";
import { Float32 } from "./float32";
import { Float64 } from "./float64";
import { Float8E4M3, Float8E5M2, WideFloat8E4M3, WideFloat8E5M2 } from "./float8";
import { BFloat16, Float16, WideBFloat16, WideFloat16 } from "./halves";
import { Int32, Int64, Int8, Uint32, Uint64, Uint8 } from "./integers";
import {
  Least16,
  Least8,
  Most16,
  Most8,
  OfBFloat16,
  OfE4M3,
  OfE5M2,
  OfFloat16,
} from "./ordered";
import { BFloat16Pairs, Float16Pairs, pairChain } from "./pairs";
import { E4M3Quads, E5M2Quads, quadChain } from "./quads";
import { scaledPairChain } from "./scaled-pairs";

/** Runs the operator `kernel & 7` (sum, prod, min, max, scaled sum, wide sum) of the dtype `kernel >> 3`. */
export function runKernel(
  kernel: i32,
  operands: usize,
  k: i32,
  targets: usize,
  t: i32,
  from: usize,
  to: usize,
  final: bool,
  divisor: i32,
  spare: usize,
): void {
  switch (kernel) {
    // Int8
    case 0:
      return chain<Int8, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    case 1:
      return chain<Int8, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 2:
      return chain<Int8, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 3:
      return chain<Int8, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 4:
      return scaledChain<Int8>(operands, k, targets, t, from, to, final, divisor, spare);
    // Uint8
    case 8:
      return chain<Uint8, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    case 9:
      return chain<Int8, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 10:
      return chain<Uint8, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 11:
      return chain<Uint8, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 12:
      return scaledChain<Int8>(operands, k, targets, t, from, to, final, divisor, spare);
    // Int32
    case 16:
      return chain<Int32, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    case 17:
      return chain<Int32, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 18:
      return chain<Int32, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 19:
      return chain<Int32, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 20:
      return scaledChain<Int32>(operands, k, targets, t, from, to, final, divisor, spare);
    // Uint32
    case 24:
      return chain<Uint32, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    case 25:
      return chain<Int32, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 26:
      return chain<Uint32, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 27:
      return chain<Uint32, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 28:
      return scaledChain<Int32>(operands, k, targets, t, from, to, final, divisor, spare);
    // Int64
    case 32:
      return chain<Int64, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    case 33:
      return chain<Int64, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 34:
      return chain<Int64, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 35:
      return chain<Int64, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 36:
      return scaledChain<Int64>(operands, k, targets, t, from, to, final, divisor, spare);
    // Uint64
    case 40:
      return chain<Uint64, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    case 41:
      return chain<Int64, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 42:
      return chain<Uint64, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 43:
      return chain<Uint64, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 44:
      return scaledChain<Int64>(operands, k, targets, t, from, to, final, divisor, spare);
    // Float16
    case 48:
      return pairChain<Float16Pairs, Float16>(operands, k, targets, t, from, to, final, divisor, spare);
    case 49:
      return chain<Float16, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 50:
      return chain<Least16<OfFloat16>, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 51:
      return chain<Most16<OfFloat16>, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 52:
      return scaledPairChain<Float16Pairs, Float16>(operands, k, targets, t, from, to, final, divisor, spare);
    case 53:
      return chain<WideFloat16, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    // BFloat16
    case 56:
      return pairChain<BFloat16Pairs, BFloat16>(operands, k, targets, t, from, to, final, divisor, spare);
    case 57:
      return chain<BFloat16, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 58:
      return chain<Least16<OfBFloat16>, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 59:
      return chain<Most16<OfBFloat16>, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 60:
      return scaledPairChain<BFloat16Pairs, BFloat16>(operands, k, targets, t, from, to, final, divisor, spare);
    case 61:
      return chain<WideBFloat16, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    // Float32
    case 64:
      return chain<Float32, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    case 65:
      return chain<Float32, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 66:
      return chain<Float32, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 67:
      return chain<Float32, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 68:
      return scaledChain<Float32>(operands, k, targets, t, from, to, final, divisor, spare);
    // Float64
    case 72:
      return chain<Float64, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    case 73:
      return chain<Float64, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 74:
      return chain<Float64, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 75:
      return chain<Float64, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 76:
      return scaledChain<Float64>(operands, k, targets, t, from, to, final, divisor, spare);
    // Float8E4M3
    case 80:
      return quadChain<E4M3Quads, Float8E4M3>(operands, k, targets, t, from, to, final, divisor, spare);
    case 81:
      return chain<Float8E4M3, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 82:
      return chain<Least8<OfE4M3>, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 83:
      return chain<Most8<OfE4M3>, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 84:
      return scaledChain<Float8E4M3>(operands, k, targets, t, from, to, final, divisor, spare);
    case 85:
      return chain<WideFloat8E4M3, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    // Float8E5M2
    case 88:
      return quadChain<E5M2Quads, Float8E5M2>(operands, k, targets, t, from, to, final, divisor, spare);
    case 89:
      return chain<Float8E5M2, Prod>(operands, k, targets, t, from, to, final, divisor, spare);
    case 90:
      return chain<Least8<OfE5M2>, Min>(operands, k, targets, t, from, to, final, divisor, spare);
    case 91:
      return chain<Most8<OfE5M2>, Max>(operands, k, targets, t, from, to, final, divisor, spare);
    case 92:
      return scaledChain<Float8E5M2>(operands, k, targets, t, from, to, final, divisor, spare);
    case 93:
      return chain<WideFloat8E5M2, Sum>(operands, k, targets, t, from, to, final, divisor, spare);
    default:
      unreachable();
  }
}
