// The command line of a script: one table is both the accepted options and the text of --help. Anything else
// ends the script with one line and status 2.

import { statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { parseArgs } from "node:util";

/** A text as it is; `label` stands for it in the help. */
export const plain = (label) => ({ label, read: (given) => given });

const isFolder = (path) => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;

/** A file to write at the end: a missing folder is refused before anything runs. */
export const output = {
  label: "FILE",
  needs: "a file in a folder that is there",
  read: (given) => (isFolder(dirname(resolve(given))) && !isFolder(given) ? given : undefined),
};

/** A number of at least `least`. */
export const number = (least = 0) => ({
  label: "N",
  needs: `a number of at least ${least}`,
  read: (given) => (given.trim() !== "" && Number(given) >= least ? Number(given) : undefined),
});

/** A whole number of at least `least`. */
export const whole = (least = 0) => ({
  label: "N",
  needs: `a whole number of at least ${least}`,
  read: (given) => (/^\d+$/.test(given) && Number(given) >= least ? Number(given) : undefined),
});

/** One of these words. */
export const oneOf = (...words) => ({
  label: words.join("|"),
  needs: `one of ${words.join(", ")}`,
  read: (given) => (words.includes(given) ? given : undefined),
});

/** Several of a kind. */
export const listOf = (each, between = ",") => ({
  label: `${each.label}${between}${each.label}`,
  needs: `${each.needs ?? each.label}, or several with "${between}" between them`,
  read: (given) => {
    const all = given.split(between).map(each.read);
    return all.includes(undefined) ? undefined : all;
  },
});

/**
 * Reads the command line.
 *
 * `about` says what the script does. `options` has a row for each: `is`, one of the kinds above, left out for a switch;
 * `default`, in the same text as on the command line; `help`. `positionals` is what stands for them in the help, where
 * there may be any. Gives the values by name, and the positionals under `_`.
 */
export function options({ name, about, options: table, positionals: label }) {
  // A closed pipe (`| head`) is not a failure.
  process.stdout.on("error", (error) => {
    if (error.code !== "EPIPE") throw error;
  });
  const all = { ...table, help: { help: "this" } };
  const refuse = (why) => {
    process.stderr.write(`${name}: ${why}; see --help\n`);
    process.exit(2);
  };
  const given = parsed(all, label !== undefined, refuse);
  if (given.values.help) {
    process.stdout.write(helpText(name, about, all, label));
    process.exit(0);
  }
  const entries = Object.entries(table).map(([option, { is, default: otherwise }]) => {
    const found = given.values[option] ?? otherwise;
    if (is === undefined) return [option, found === true];
    if (found === undefined) return [option, undefined];
    const value = is.read(found);
    if (value === undefined) refuse(`--${option}: found "${found}", needs ${is.needs}`);
    return [option, value];
  });
  return { ...Object.fromEntries(entries), _: given.positionals };
}

function parsed(table, allowPositionals, refuse) {
  const rows = Object.entries(table).map(([option, { is }]) => [
    option,
    { type: is === undefined ? "boolean" : "string" },
  ]);
  try {
    return parseArgs({ options: Object.fromEntries(rows), allowPositionals });
  } catch (error) {
    if (!String(error.code).startsWith("ERR_PARSE_ARGS")) throw error;
    // Node says what is wrong in its first sentence; the rest is advice about positionals.
    const [why] = error.message.split(/[.\n]/);
    return refuse(why.charAt(0).toLowerCase() + why.slice(1));
  }
}

function helpText(name, about, table, label) {
  const heads = Object.entries(table).map(([option, { is }]) =>
    is === undefined ? `--${option}` : `--${option} ${is.label}`,
  );
  const width = Math.max(...heads.map((head) => head.length)) + 2;
  const lines = Object.values(table).map(({ help, default: otherwise }, at) => {
    const unless = otherwise === undefined ? "" : ` (${otherwise})`;
    return `  ${heads[at].padEnd(width)}${help}${unless}\n`;
  });
  const usage = `${name} [options]${label === undefined ? "" : ` [${label}]`}`;
  return `${usage}\n\n${about}\n\n${lines.join("")}`;
}
