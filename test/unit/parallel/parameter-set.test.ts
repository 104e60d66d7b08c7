/** A model's parameters: one layout whatever the order of declaration, and refusals by name. */
import { InvalidArgumentError } from "twinccl";
import { type ParameterDeclaration, ParameterSet } from "twinccl/parallel";
import { expect, test } from "vitest";

const declarations: readonly ParameterDeclaration[] = [
  { name: "b", shape: [2], values: [1, 2] },
  { name: "a10", shape: [3, 1], dtype: "float64", values: [3, 4, 5] },
  { name: "a9", shape: [], values: [6] },
  { name: "B", shape: [0, 4] },
];

test("parameters follow one another by name, by code units, in any order of declaration", () => {
  const set = new ParameterSet(declarations);
  const other = new ParameterSet(declarations.toReversed());
  expect(set.names).toEqual(["B", "a10", "a9", "b"]);
  expect(other.names).toEqual(set.names);
  expect([...set.values("float32")]).toEqual([6, 1, 2]);
  expect(other.values("float32")).toEqual(set.values("float32"));
  expect([...set.values("float64")]).toEqual([3, 4, 5]);
  expect([...set].map(({ declared }) => declared)).toEqual([3, 1, 2, 0]);
  expect([set.size, set.elements]).toEqual([4, 6]);
});

test("values and gradients are live views of the flat memory", () => {
  const set = new ParameterSet(declarations);
  set.get("b").value[1] = 9;
  set.get("b").gradient[0] = 7;
  expect([...set.values("float32")]).toEqual([6, 1, 9]);
  expect([...set.gradients("float32")]).toEqual([0, 7, 0]);
  set.zeroGradients();
  expect([...set.gradients("float32")]).toEqual([0, 0, 0]);
});

test.each<[string, ParameterDeclaration[], RegExp]>([
  ["no name", [{ name: "", shape: [] }], /parameter 0 "": name: .* needs a text/],
  [
    "a name twice",
    [
      { name: "w", shape: [] },
      { name: "w", shape: [] },
    ],
    /parameter 1 "w": name/,
  ],
  ["a dtype of no parameters", [{ name: "w", shape: [], dtype: "int8" as "float32" }], /dtype/],
  ["a negative extent", [{ name: "w", shape: [2, -1] }], /"w": shape: found \[2, -1\]/],
  ["too few values", [{ name: "w", shape: [2, 2], values: [1, 2] }], /found 2 elements, needs 4/],
])("%s is refused", (_, wrong, message) => {
  expect(() => new ParameterSet(wrong)).toThrow(InvalidArgumentError);
  expect(() => new ParameterSet(wrong)).toThrow(message);
});

test("an unknown name is refused with the known names", () => {
  const set = new ParameterSet(declarations);
  expect(() => set.get("c")).toThrow(/"c": no parameter has this name\nhint: .*B, a10, a9, b/);
  expect([set.has("b"), set.has("c")]).toEqual([true, false]);
});

test("restoring takes values by name, or changes no value", () => {
  const set = new ParameterSet(declarations);
  const other = new ParameterSet(
    declarations.map(({ name, dtype = "float32", shape }) => ({ name, dtype, shape })).toReversed(),
  );
  other.restore(set.state());
  expect(other.values("float32")).toEqual(set.values("float32"));
  expect(other.values("float64")).toEqual(set.values("float64"));

  const { a9, ...rest } = set.state().tensors;
  const wrong = { ...set.state().tensors, a9: { ...a9!, shape: [1] } };
  for (const tensors of [rest, wrong, { ...rest, a9: a9!, c: a9! }]) {
    const kept = new ParameterSet(declarations.map(({ values: _, ...each }) => each));
    expect(() => kept.restore({ values: {}, tensors })).toThrow(/"a9": found|"c": no/);
    expect([...kept.values("float32")]).toEqual([0, 0, 0]);
  }
});
