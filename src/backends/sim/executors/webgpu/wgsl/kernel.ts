/**
 * Whole kernels: every invocation folds one place of one chunk from all its operands and writes it to all targets.
 *
 * The table holds the work in rows of four words. Row 0: tiles, jobs, tiles in a row of the grid, divisor. Then two rows a job:
 * first tile, bytes, first operand, number of operands; first target, number of targets, first byte within a line, 1 for a
 * complete value. Then the operands: window and kind, address, scalar; and targets: window, address.
 */
import { type Access, accessText } from "./access.ts";
import type { Arithmetic } from "./arithmetic.ts";

/** Invocations of a workgroup; each folds one piece of a tile. */
export const workgroupSize = 256;

/** Rows of a job in the table. */
export const rowsPerJob = 2;

/** Kinds of operands, in bits 16 and up of their first word. */
export const operandKind = { contribution: 0, partial: 1, running: 2 } as const;

const operandKindShift = 16;

/** The first word of an operand's row. */
export function operandWord(window: number, kind: keyof typeof operandKind): number {
  return window | (operandKind[kind] << operandKindShift);
}

/** Bytes that one invocation folds. */
export function pieceBytes(access: Access, unit: Arithmetic["unit"]): number {
  return access === "wide" ? 16 : unit === "vec2<u32>" ? 8 : 4;
}

const head = (bytes: number): string => /* wgsl */ `
@compute @workgroup_size(${workgroupSize})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let head = table[0];
  let tile = group.y * head.z + group.x;
  if (tile >= head.x) { return; }
  var low = 0u;
  var high = head.y;
  while (high - low > 1u) {
    let middle = (low + high) >> 1u;
    if (table[1u + ${rowsPerJob}u * middle].x <= tile) { low = middle; } else { high = middle; }
  }
  let job = table[1u + ${rowsPerJob}u * low];
  let more = table[2u + ${rowsPerJob}u * low];
  let at = ((tile - job.x) * ${workgroupSize}u + lane) * ${bytes}u;
  if (at >= job.y) { return; }
`;

const tableBinding = "@group(0) @binding(0) var<storage, read> table: array<vec4<u32>>;";

/** The end of a kernel: writes the result to all targets of the job. */
function toTargets(put: string): string {
  return /* wgsl */ `  for (var t = 0u; t < more.y; t++) {
    let target_ = table[more.x + t];
    ${put}
  }
}
`;
}

/** Folds: the operands of a job, in their order. */
export function foldKernel(arithmetic: Arithmetic, access: Access, windows: number): string {
  return [
    `${arithmetic.directives}${tableBinding}`,
    arithmetic.text,
    accessText(access, windows),
    foldUnit(arithmetic),
    head(pieceBytes(access, arithmetic.unit)),
    access === "wide" ? wideBody(arithmetic) : narrowBody(arithmetic),
  ].join("");
}

/** `fold`: an operand of any kind, the first one or a further one. */
function foldUnit({ unit, running, scales, fused }: Arithmetic): string {
  const head = `fn fold(first: bool, a: ${running}, x: ${unit}, kind: u32, scalar: vec2<u32>, place: u32) -> ${running} {`;
  if (!scales) {
    return /* wgsl */ `
${head}
  let y = start(x, scalar);
  if (first) { return y; }
  return join(a, y);
}
`;
  }
  return /* wgsl */ `${fused === "byPosition" ? isApart : ""}
${head}${fused === "none" ? "" : fuseStatement(fused)}
  var y = x;
  if (kind != ${operandKind.running}u) { y = start(x, scalar); }
  if (first) { return y; }
  return join(a, y);
}
`;
}

/** Bytes of an LL128 line, the period of the rounding of products. */
export const lineBytes = 960;

/** Over LL128 the product of the second 8 bytes of most packs of 16 is rounded separately. */
const isApart = /* wgsl */ `
fn isApart(place: u32) -> bool {
  let pack = (place % ${lineBytes}u) >> 4u;
  return (place & 8u) != 0u && !(pack == 7u || pack == 15u || pack == 23u || pack == 31u);
}
`;

/** A contribution with a product that is rounded together with the sum. */
function fuseStatement(fused: Arithmetic["fused"]): string {
  const here = fused === "byPosition" ? " && !isApart(place)" : "";
  return `
  if (!first && kind == ${operandKind.contribution}u${here}) { return fuse(a, x, scalar); }`;
}

const letters = ["x", "y", "z", "w"] as const;

/** The units of 16 bytes, as members of a vector. */
function members(unit: Arithmetic["unit"]): readonly string[] {
  return unit === "u32" ? letters : ["xy", "zw"];
}

function wideBody(arithmetic: Arithmetic): string {
  return arithmetic.light ? unrolledBody(arithmetic) : loopedBody(arithmetic);
}

/** Four operands are loaded before the first of them is needed. */
function unrolledBody({ unit, running }: Arithmetic): string {
  const units = members(unit);
  const step = (value: string, row: string): string =>
    units
      .map(
        (m, i) =>
          `r${i} = fold(false, r${i}, ${value}.${m}, ${row}.x >> 16u, ${row}.zw, more.z + at + ${(16 / units.length) * i}u);`,
      )
      .join("\n    ");
  const loads = [0, 1, 2, 3].map(
    (i) => `let o${i} = table[job.z + k + ${i}u];
    let v${i} = load16(o${i}.x & 0xffffu, (o${i}.y + at) >> 4u);`,
  );
  return /* wgsl */ `
  let o = table[job.z];
  let v = load16(o.x & 0xffffu, (o.y + at) >> 4u);
  ${units.map((m, i) => `var r${i} = fold(true, ${running}(), v.${m}, o.x >> 16u, o.zw, 0u);`).join("\n  ")}
  var k = 1u;
  for (; k + 4u <= job.w; k += 4u) {
    ${loads.join("\n    ")}
    ${[0, 1, 2, 3].map((i) => step(`v${i}`, `o${i}`)).join("\n    ")}
  }
  for (; k < job.w; k++) {
    let row = table[job.z + k];
    let value = load16(row.x & 0xffffu, (row.y + at) >> 4u);
    ${step("value", "row")}
  }
  if (more.w == 1u) {
    ${units.map((_, i) => `r${i} = finish(r${i}, head.w);`).join("\n    ")}
  }
  let result = vec4<u32>(${units.map((_, i) => `store(r${i})`).join(", ")});
${toTargets("put16(target_.x, (target_.y + at) >> 4u, result);")}`;
}

/** Long arithmetic is written once, so that shaders stay short to compile. */
function loopedBody({ unit, running }: Arithmetic): string {
  const units = members(unit).length;
  const pick = unit === "u32" ? "v[i]" : "vec2<u32>(v[2u * i], v[2u * i + 1u])";
  const keep =
    unit === "u32" ? "result[i] = unit;" : "result[2u * i] = unit.x; result[2u * i + 1u] = unit.y;";
  return /* wgsl */ `
  var r: array<${running}, ${units}>;
  for (var k = 0u; k < job.w; k++) {
    let row = table[job.z + k];
    var v = load16(row.x & 0xffffu, (row.y + at) >> 4u);
    for (var i = 0u; i < ${units}u; i++) {
      let x = ${pick};
      r[i] = fold(k == 0u, r[i], x, row.x >> 16u, row.zw, more.z + at + ${16 / units}u * i);
    }
  }
  var result: vec4<u32>;
  for (var i = 0u; i < ${units}u; i++) {
    if (more.w == 1u) { r[i] = finish(r[i], head.w); }
    let unit = store(r[i]);
    ${keep}
  }
${toTargets("put16(target_.x, (target_.y + at) >> 4u, result);")}`;
}

function narrowBody({ unit, running }: Arithmetic): string {
  const pair = unit === "vec2<u32>";
  const load = pair
    ? "vec2<u32>(load(row.x & 0xffffu, row.y + at), load(row.x & 0xffffu, row.y + at + 4u))"
    : "load(row.x & 0xffffu, row.y + at)";
  const put = pair
    ? "put(target_.x, target_.y + at, unit.x, 4u); put(target_.x, target_.y + at + 4u, unit.y, 4u);"
    : "put(target_.x, target_.y + at, unit, job.y - at);";
  return /* wgsl */ `
  var r: ${running};
  for (var k = 0u; k < job.w; k++) {
    let row = table[job.z + k];
    let x = ${load};
    r = fold(k == 0u, r, x, row.x >> 16u, row.zw, more.z + at);
  }
  if (more.w == 1u) { r = finish(r, head.w); }
  let unit = store(r);
${toTargets(put)}`;
}
