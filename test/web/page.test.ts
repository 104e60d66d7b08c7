/** The page in headless Chromium: what it runs, shows and remembers. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { coloursOf, readPng } from "../support/png.ts";
import {
  addressed,
  type Opened,
  openPage,
  openSite,
  type PageOptions,
  playSlowly,
  ran,
  resize,
  type Site,
  text,
  timeOf,
} from "../support/web-page.ts";

let site: Site;

beforeAll(async () => {
  site = await openSite();
});

afterAll(async () => {
  await site?.close();
});

/** Opens the page, has it used, and demands that nothing was complained about. */
async function on(
  query: string,
  use: (page: Page) => Promise<void>,
  options?: PageOptions,
): Promise<void> {
  const { page, complaints }: Opened = await openPage(site, query, options);
  try {
    await use(page);
    expect(complaints).toEqual([]);
  } finally {
    await page.context().close();
  }
}

/** Counts the writes of the address, in `globalThis.written`. */
async function countWrites(page: Page): Promise<void> {
  await page.evaluate(`{
    const { replaceState } = history;
    globalThis.written = 0;
    history.replaceState = (...args) => {
      globalThis.written += 1;
      replaceState.apply(history, args);
    };
  }`);
}

const still = { reducedMotion: "reduce" } as const;
// Such pages stand still: frames that are drawn in software take time from the calls.
const everyExecutor = { ...still, hasWebGpu: true } as const;

describe("the build", () => {
  test("needs nothing of Node", () => {
    const assets = join(site.folder, "assets");
    const scripts = readdirSync(assets).filter((name) => name.endsWith(".js"));
    expect(scripts.length).toBeGreaterThan(0);
    for (const name of scripts) {
      expect(readFileSync(join(assets, name), "utf8")).not.toMatch(
        /(from|import)\s*\(?\s*["'`]node:|__vite-browser-external/,
      );
    }
  });
  test("works in any folder", () => {
    const html = readFileSync(join(site.folder, "index.html"), "utf8");
    expect(html).toMatch(/src="\.\/assets\//);
    expect(html).not.toMatch(/(src|href)="\//);
  });
});

describe("the call", () => {
  test.each([
    "ranks=4&count=1000",
    "plan=nccl&dtype=bfloat16&op=avg&count=100003",
    "plan=nccl-symmetric&dtype=float16&count=4096&values=wild",
    "collective=reduceScatter&plan=ring&dtype=float8e4m3&ranks=5&count=333&values=wild",
    "collective=allToAllv&plan=pairwise&dtype=int64&ranks=3&count=100",
    "collective=gather&plan=direct&root=2&ranks=4&count=64&dtype=uint8",
  ])("%s gives the same bits on every executor", async (query) => {
    const use = async (page: Page): Promise<void> => {
      const findings = await page
        .locator("#verdict li")
        .evaluateAll((items) =>
          items.map(
            (item) => `${item.getAttribute("data-executor")} ${item.getAttribute("data-kind")}`,
          ),
        );
      expect(findings).toEqual(["cpu reference", "wasm compared", "webgpu compared"]);
      expect(await page.locator("#verdict").getAttribute("data-mood")).toBe("good");
      expect(await text(page, "#verdict [data-executor=webgpu]")).toContain("swiftshader");
      expect(await text(page, "#faults")).toBe("");
      expect(await page.locator("#inspector .agrees").count()).toBe(1);
    };
    await on(query, use, everyExecutor);
  });

  test("runs on the others where the browser has no WebGPU, and reports it", async () => {
    await on(
      "ranks=3",
      async (page) => {
        const webgpu = page.locator("#verdict [data-executor=webgpu]");
        expect(await webgpu.getAttribute("data-kind")).toBe("missing");
        expect(await webgpu.innerText()).toContain("there is no navigator.gpu");
        expect(await text(page, "#verdict .headline")).toMatch(/cpu and wasm give the same bits/);
      },
      still,
    );
  });

  test("with an invalid argument is refused with its reason", async () => {
    const use = async (page: Page): Promise<void> => {
      expect(await text(page, "#faults")).toMatch(
        /^allReduce: op: preMul is 0.5, but int32 takes an integer .*needs sum, prod/,
      );
      expect(await text(page, "#verdict")).toMatch(/This allReduce has no result/);
      expect(await page.locator("#stage").isVisible()).toBe(false);
      expect(await page.locator("#inspector").isVisible()).toBe(false);
      await page.locator("#scalar").fill("3");
      await page.locator("#scalar").press("Enter");
      await ran(page);
      expect(await text(page, "#faults")).toBe("");
      expect(coloursOf(readPng(await page.locator("#stage").screenshot())).size).toBeGreaterThan(
        20,
      );
      expect(await page.locator("#inspector .agrees").count()).toBe(1);
    };
    await on("dtype=int32&op=preMul&scalar=0.5", use, { hasWebGpu: true });
  });
});

describe("a change of a call that is still running", () => {
  test("back to the call before shows that one", async () => {
    const use = async (page: Page): Promise<void> => {
      // In one turn of the page: the call between them has not run when it is left.
      await page.evaluate(`{
        const field = document.getElementById("count");
        for (const count of ["1000", "8"]) {
          field.value = count;
          field.dispatchEvent(new Event("change"));
        }
      }`);
      await ran(page);
      expect(await page.inputValue("#count")).toBe("8");
      expect(await text(page, "#verdict .headline")).toContain("all 16 elements");
    };
    await on("ranks=2&count=8", use, still);
  });
});

describe("a failure of the page", () => {
  test("to draw is shown with its reason", async () => {
    const use = async (page: Page): Promise<void> => {
      await page.evaluate("HTMLCanvasElement.prototype.getContext = () => null");
      await page.locator("#dtype").selectOption("float16");
      await ran(page);
      expect(await text(page, "#faults")).toBe("this browser has no 2D canvas");
      expect(await text(page, "#verdict")).toMatch(/This allReduce has no result/);
    };
    await on("ranks=3", use, still);
  });
});

describe("a call of one rank", () => {
  test("moves no messages, takes no time and has no hops", async () => {
    const use = async (page: Page): Promise<void> => {
      expect(await text(page, "#stage-caption")).toBe("1 rank, no messages");
      expect(await text(page, "#clock")).toBe("0 ps of 0 ps");
      expect(await page.locator("#inspector table").count()).toBe(0);
      expect(await page.locator("#inspector .agrees").count()).toBe(1);
    };
    await on("ranks=1", use, still);
  });
});

describe("a barrier", () => {
  test("has no element to choose, unlike the call after it", async () => {
    const use = async (page: Page): Promise<void> => {
      const areEnabled = (): Promise<boolean[]> =>
        Promise.all(["#element-rank", "#element"].map((field) => page.locator(field).isEnabled()));
      expect(await areEnabled()).toEqual([false, false]);
      expect(await page.locator("#memory-hint").isVisible()).toBe(false);
      await page.locator("#collective").selectOption("allReduce");
      await ran(page);
      expect(await areEnabled()).toEqual([true, true]);
      expect(await page.locator("#memory-hint").isVisible()).toBe(true);
    };
    await on("collective=barrier&ranks=2", use, still);
  });
});

describe("another collective", () => {
  test("takes its first plan where it has none of that name", async () => {
    const use = async (page: Page): Promise<void> => {
      for (const [collective, plan] of [
        ["broadcast", "binomial"],
        ["allToAllv", "pairwise"],
        ["allReduce", "ring"],
      ] as const) {
        await page.locator("#collective").selectOption(collective);
        await ran(page);
        expect(await text(page, "#faults")).toBe("");
        expect(await page.inputValue("#plan")).toBe(plan);
      }
      await page.locator("#plan").selectOption("nccl");
      await page.locator("#collective").selectOption("reduce");
      await ran(page);
      expect(await page.inputValue("#plan")).toBe("nccl");
    };
    await on("ranks=4&count=100", use, still);
  });
});

describe("a call across hosts", () => {
  test("has trees A and B with their channels, also after the screen has become narrow", async () => {
    const use = async (page: Page): Promise<void> => {
      const names = () => page.locator("#stage .panel-name").allTextContents();
      const boxes = async (): Promise<readonly number[]> => {
        const found = await page.locator("#stage .panel-name").all();
        const places = await Promise.all(found.map((each) => each.boundingBox()));
        return places.map((place) => Math.round(place?.x ?? -1));
      };
      expect(await names()).toEqual(["tree A · channels 0, 1", "tree B · channels 2, 3"]);
      expect(new Set(await boxes()).size).toBe(2);
      expect(await text(page, "#facts")).toContain("from the source, not measured");
      await resize(page, { width: 390, height: 800 });
      await page.waitForFunction(
        `document.querySelector("#stage svg").getAttribute("viewBox").startsWith("0 0 400 ")`,
      );
      expect(await names()).toHaveLength(2);
      expect(new Set(await boxes()).size).toBe(1);
      expect(await page.locator("#stage .spot").count()).toBe(32);
    };
    await on("plan=hosts-tree-simple&ranks=16&network=400&count=100000", use, still);
  });

  test("has its network beside it, which other calls do not have", async () => {
    const use = async (page: Page): Promise<void> => {
      expect(await page.locator("#network").isVisible()).toBe(true);
      expect(await text(page, "#facts")).toContain("sockets at 10 Gb/s");
      await page.locator("#network").selectOption("25");
      await ran(page);
      expect(await addressed(page)).toContain("network=25");
      expect(await text(page, "#facts")).toContain("sockets at 25 Gb/s");
      await page.locator("#plan").selectOption("ring");
      await ran(page);
      expect(await page.locator("#network").isVisible()).toBe(false);
    };
    await on("plan=hosts&ranks=4&count=1000", use, still);
  });
});

describe("the plan", () => {
  test("says where it has fewer channels than are set", async () => {
    const use = async (page: Page): Promise<void> => {
      const channels = page.locator("#facts dt:text-is('channels') + dd");
      expect(await channels.innerText()).toBe(
        "2 of the 4 that are set: NCCL takes fewer for few elements or one rank",
      );
      await page.locator("#channels").selectOption("2");
      await ran(page);
      expect(await channels.innerText()).toBe("2");
      await page.locator("#channels").selectOption("4");
      await ran(page);
      await page.locator("#plan").selectOption("ring");
      await ran(page);
      expect(await channels.innerText()).toBe("1");
    };
    await on("plan=nccl&channels=4", use, still);
  });
});

describe("the animation", () => {
  test("begins by itself, advances, and stops on request", async () => {
    await on("", async (page) => {
      expect(await timeOf(page)).toBeGreaterThan(0);
      await playSlowly(page);
      const [first, picture] = [await timeOf(page), await page.locator("#stage").screenshot()];
      await page.waitForFunction(`Number(document.getElementById("scrubber").value) > ${first}`);
      expect((await page.locator("#stage").screenshot()).equals(picture)).toBe(false);
      await page.locator("#play").click();
      const paused = await timeOf(page);
      await page.waitForTimeout(200);
      expect(await timeOf(page)).toBe(paused);
    });
  });
  test("stands still under reduced motion, and shows its end", async () => {
    await on(
      "ranks=4",
      async (page) => {
        expect(await timeOf(page)).toBe(0);
        await page.locator("#speed").selectOption("4");
        await page.locator("#play").click();
        await page.locator("html[data-playing=no]").waitFor();
        expect(await text(page, "#clock")).toMatch(/^(\S+) µs of \1 µs$/);
      },
      still,
    );
  });
});

describe("the timeline", () => {
  test("has its playhead over all lanes, also those that are scrolled to", async () => {
    const use = async (page: Page): Promise<void> => {
      const bottomOf = async (selector: string): Promise<number> => {
        const { y = 0, height = 0 } = (await page.locator(selector).boundingBox()) ?? {};
        return Math.round(y + height);
      };
      expect(await page.evaluate("document.getElementById('timeline').clientHeight")).toBe(858);
      expect(await bottomOf("#playhead")).toBe(await bottomOf("#timeline"));
    };
    await on("ranks=32&count=64", use, still);
  });
});

describe("the keyboard", () => {
  test("steps from message to message on the scrubber", async () => {
    // A link of 100 ns and 1 GB/s, messages of 100 bytes: they arrive every 200 ns.
    await on(
      "ranks=4&count=100&latency=100&bandwidth=1",
      async (page) => {
        const scrubber = page.locator("#scrubber");
        await scrubber.focus();
        const seen: number[] = [];
        for (const key of ["ArrowRight", "ArrowUp", "ArrowLeft", "End", "ArrowLeft", "Home"]) {
          await scrubber.press(key);
          seen.push(await timeOf(page));
        }
        expect(seen).toEqual([200_000, 400_000, 200_000, 1_200_000, 1_000_000, 0]);
        expect(await scrubber.getAttribute("aria-valuetext")).toBe("0.000 µs of 1.200 µs");
        await scrubber.press("PageUp");
        expect(await timeOf(page)).toBe(120_000);
      },
      still,
    );
  });
  test("plays, pauses and steps from anywhere", async () => {
    await on(
      "ranks=4&count=100&latency=100&bandwidth=1",
      async (page) => {
        await page.keyboard.press(".");
        expect(await timeOf(page)).toBe(200_000);
        await page.keyboard.press(",");
        expect(await timeOf(page)).toBe(0);
        await page.keyboard.press(" ");
        await page.locator("html[data-playing=yes]").waitFor();
        await page.keyboard.press(" ");
        await page.locator("html[data-playing=no]").waitFor();
      },
      still,
    );
  });
  test("reaches every control, in the order of reading", async () => {
    await on(
      "plan=nccl-ring-ll",
      async (page) => {
        const order: string[] = [];
        for (let i = 0; i < 40; i++) {
          await page.keyboard.press("Tab");
          const id = String(
            await page.evaluate("document.activeElement.id || document.activeElement.name || ''"),
          );
          if (id !== "") order.push(id);
          if (id === "element") break;
        }
        expect(order).toEqual(
          "copy-link theme collective count dtype op ranks plan channels values seed latency bandwidth back play forward speed lanes scrubber element-rank element".split(
            " ",
          ),
        );
      },
      still,
    );
  });
  test("finds a name on every control", async () => {
    await on(
      "",
      async (page) => {
        const nameless =
          await page.evaluate(`[...document.querySelectorAll("button, input, select")]
        .filter((e) => !e.getAttribute("aria-label") && !e.closest("label") && !e.textContent.trim())
        .map((e) => e.id)`);
        expect(nameless).toEqual([]);
        // Speech input takes the text that is seen.
        for (const seen of ["auto", "light", "dark"]) {
          expect(await page.locator("#theme").getAttribute("aria-label")).toMatch(`Theme: ${seen}`);
          await page.locator("#theme").click();
        }
        expect(await page.locator("#verdict").getAttribute("aria-live")).toBe("polite");
      },
      still,
    );
  });
});

describe("the address", () => {
  const query = "collective=reduce&plan=chain&ranks=5&count=777&dtype=float16&op=max&root=3&seed=9";
  test("restores what is seen", async () => {
    await on(`${query}&rank=3&element=42&time=300000&lanes=links`, async (page) => {
      for (const [id, value] of Object.entries({
        collective: "reduce",
        plan: "chain",
        ranks: "5",
        count: "777",
        dtype: "float16",
        op: "max",
        root: "3",
        seed: "9",
        element: "42",
        "element-rank": "3",
        scrubber: "300000",
      })) {
        expect(await page.inputValue(`#${id}`), id).toBe(value);
      }
      expect(await page.isChecked("input[value=links]")).toBe(true);
      expect(await page.locator("html").getAttribute("data-playing")).toBe("no");
    });
  });
  test("follows every change, and back again after a reload", async () => {
    await on(
      "",
      async (page) => {
        await page.locator("#dtype").selectOption("float16");
        await ran(page);
        await page.locator("#plan").selectOption("double-tree");
        await ran(page);
        await page.locator("#element").fill("100");
        await page.locator("#element").press("Enter");
        expect(await addressed(page)).toBe("?plan=double-tree&dtype=float16&element=100&time=0");
        await page.reload();
        await ran(page);
        expect(await page.inputValue("#plan")).toBe("double-tree");
        expect(await text(page, "#inspector")).toMatch(/^Element 100 of rank 0/);
      },
      still,
    );
  });
  test("with another time counts while its call is under way", async () => {
    await on(
      "ranks=3",
      async (page) => {
        await page.evaluate(`{
          for (const query of ["?ranks=4", "?ranks=4&time=300000"]) {
            history.pushState(null, "", query);
            dispatchEvent(new PopStateEvent("popstate"));
          }
        }`);
        await ran(page);
        expect(await timeOf(page)).toBe(300_000);
        expect(await addressed(page)).toBe("?ranks=4&time=300000");
      },
      still,
    );
  });
  test("of an animation that begins by itself does so for the next reader too, until it is paused", async () => {
    await on("ranks=3", async (page) => {
      expect(await addressed(page)).toBe("?ranks=3");
      await playSlowly(page);
      await page.locator("#play").click();
      const paused = await timeOf(page);
      expect(await addressed(page)).toBe(`?ranks=3&time=${paused}`);
      await page.reload();
      await ran(page);
      expect(await text(page, "#faults")).toBe("");
      expect(await timeOf(page)).toBe(paused);
    });
  });
  test("is written once for a drag of the scrubber or of the timeline", async () => {
    await on(
      "ranks=4",
      async (page) => {
        await countWrites(page);
        for (const [at, id] of ["scrubber", "timeline"].entries()) {
          await page.locator(`#${id}`).scrollIntoViewIfNeeded();
          const box = (await page.locator(`#${id}`).boundingBox())!;
          const y = box.y + box.height / 2;
          await page.mouse.move(box.x + 0.2 * box.width, y);
          await page.mouse.down();
          await page.mouse.move(box.x + 0.8 * box.width, y, { steps: 20 });
          await page.mouse.up();
          expect(await page.evaluate("globalThis.written"), id).toBe(at + 1);
          expect(await addressed(page)).toBe(`?ranks=4&time=${await timeOf(page)}`);
        }
      },
      still,
    );
  });
  test("is written once for a held key", async () => {
    await on(
      "ranks=4",
      async (page) => {
        await countWrites(page);
        for (const [at, key] of ["ArrowRight", "PageUp", ","].entries()) {
          await page.locator("#scrubber").focus();
          for (let press = 0; press < 5; press++) await page.keyboard.down(key);
          await page.keyboard.up(key);
          expect(await page.evaluate("globalThis.written"), key).toBe(at + 1);
          expect(await addressed(page)).toBe(`?ranks=4&time=${await timeOf(page)}`);
        }
      },
      still,
    );
  });
  test("with errors is reported, and the rest of it used", async () => {
    await on(
      "ranks=99&dtype=float12&count=64&bandwidth=1e300&latency=-1",
      async (page) => {
        const faults = await text(page, "#faults");
        expect(faults).toMatch(/ranks: found "99", needs a whole number from 1 to 32/);
        expect(faults).toMatch(/dtype: found "float12"/);
        expect(faults).toMatch(
          /bandwidth: found "1e300", needs a number from 0.000001 to 1,000,000,000/,
        );
        expect(faults).toMatch(/latency: found "-1", needs a number from 0 to 1,000,000,000,000/);
        expect(await page.inputValue("#count")).toBe("64");
        expect(await page.inputValue("#ranks")).toBe("8");
      },
      still,
    );
  });
});

describe("the element inspector", () => {
  /** Number of a value as the page writes it. */
  const number = (shown: string): number => Number(shown.replace("−", "-"));
  test("shows the known fold of a ring, each hop rounded to float32", async () => {
    // Element 4 of 10 lies in chunk 1 of 4, which a ring folds from rank 2 on: ((r2 + r3) + r0) + r1.
    await on(
      "ranks=4&count=10&element=4&rank=1",
      async (page) => {
        expect(await text(page, "#inspector .formula")).toBe("r2 + r3 + r0 + r1");
        const rows = await page
          .locator(".hops tbody tr")
          .evaluateAll((all) =>
            all.map((row) =>
              [...row.querySelectorAll(".value")].map((value) => value.textContent ?? ""),
            ),
          );
        expect(rows).toHaveLength(3);
        let before: string | undefined;
        for (const [left = "", right = "", result = ""] of rows) {
          if (before !== undefined) expect(left).toBe(before);
          // The shortest decimals that mean these float32 values; a double holds their sum exactly.
          const sum = Math.fround(number(left)) + Math.fround(number(right));
          expect(Math.fround(number(result))).toBe(Math.fround(sum));
          before = result;
        }
        const bits = new DataView(new ArrayBuffer(4));
        bits.setFloat32(0, number(before ?? ""));
        const hex = `0x${bits.getUint32(0).toString(16).padStart(8, "0")}`;
        expect(await text(page, "#inspector .agrees")).toContain(hex);
        expect(await page.locator(".hops .rounding").allInnerTexts()).toHaveLength(3);
      },
      still,
    );
  });
  test("takes a number that is typed once it is complete", async () => {
    await on(
      "ranks=4&count=1000",
      async (page) => {
        await page.locator("#element").fill("");
        expect(await text(page, "#faults")).toBe("");
        await page.locator("#element").pressSequentially("417");
        await page.locator("#element").press("Enter");
        expect(await text(page, "#faults")).toBe("");
        expect(await page.inputValue("#element")).toBe("417");
        expect(await text(page, "#inspector")).toMatch(/^Element 417 of rank 0/);
      },
      still,
    );
  });
  test("follows a click on a rank's memory", async () => {
    await on(
      "ranks=4&count=1000",
      async (page) => {
        const box = await page.locator("#memory").boundingBox();
        if (box === null) throw new Error("no memory is drawn");
        const place = { x: 30 + (box.width - 30) * 0.6, y: box.height * 0.6 };
        await page.locator("#memory").click({ position: place });
        expect(await page.inputValue("#element-rank")).toBe("2");
        expect(Number(await page.inputValue("#element"))).toBeGreaterThan(590);
        expect(Number(await page.inputValue("#element"))).toBeLessThan(610);
        expect(await text(page, "#inspector .formula")).toBe("r3 + r0 + r1 + r2");
      },
      still,
    );
  });
});

describe("the picture", () => {
  test.each(["light", "dark"] as const)("is not blank in the %s theme", async (colorScheme) => {
    await on(
      "time=4000000",
      async (page) => {
        const shot = readPng(await page.screenshot());
        const colours = [...coloursOf(shot)].sort(([, a], [, b]) => b - a);
        expect(colours.length).toBeGreaterThan(400);
        const paper = shot.at(2, 2);
        expect(
          (colours.find(([colour]) => colour === paper)?.[1] ?? 0) / (1280 * 900),
        ).toBeLessThan(0.7);
        expect(paper >> 16 > 128).toBe(colorScheme === "light");
        for (const id of ["stage", "memory", "timeline"]) {
          const part = readPng(await page.locator(`#${id}`).screenshot());
          expect(coloursOf(part).size, id).toBeGreaterThan(20);
        }
      },
      { ...still, colorScheme },
    );
  });
  test("changes its theme by the button", async () => {
    await on(
      "",
      async (page) => {
        await page.locator("#theme").click();
        await page.locator("#theme").click();
        expect(await page.locator("#theme").innerText()).toBe("Dark");
        expect(readPng(await page.screenshot()).at(2, 2) >> 16).toBeLessThan(64);
        await page.reload();
        await ran(page);
        expect(await page.locator("#theme").innerText()).toBe("Dark");
      },
      { ...still, colorScheme: "light" },
    );
  });
  test("has room for the name of the root of a tree", async () => {
    const use = async (page: Page): Promise<void> => {
      const [stage, name] = await Promise.all(
        ["#stage svg", ".root-name"].map((each) => page.locator(each).boundingBox()),
      );
      expect(name!.y).toBeGreaterThan(stage!.y);
    };
    await on("collective=scatter&ranks=4&root=2&count=10", use, still);
  });
  const wide = [
    "plan=nccl-tree-simple&op=avg&dtype=float8e5m2",
    "dtype=float32&count=16384&element=5000&rank=2",
    "dtype=float64&op=avg&values=wild&count=1000&element=700&rank=2",
    "dtype=int64&op=prod&values=wild&ranks=4&count=1000&element=77",
    "plan=double-tree&dtype=float64&values=wild&ranks=32&count=1000",
  ];
  test.each(wide)("fits screens of 1400 to 320 pixels: %s", async (query) => {
    const use = async (page: Page): Promise<void> => {
      for (const width of [1400, 1100, 1000, 768, 390, 320]) {
        await resize(page, { width, height: 800 });
        const over = await page.evaluate(
          "['html', '#inspector .table-room'].map((each) => document.querySelector(each)).map((each) => each.scrollWidth - each.clientWidth)",
        );
        expect(over, `${width} pixels`).toEqual([0, 0]);
        const cells = await page.locator(".hops tbody :is(th, td)").all();
        const boxes = await Promise.all(cells.map((each) => each.boundingBox()));
        const outside = boxes.filter((box) => box !== null && box.x + box.width > width);
        expect({ cells: boxes.length > 0, outside }).toEqual({ cells: true, outside: [] });
        const texts = await page.locator(".hops .rounding").allInnerTexts();
        expect(texts.filter((each) => each === "")).toEqual([]);
      }
    };
    await on(query, use, everyExecutor);
  });
  test("has controls of at least 24 pixels each way on a phone, with the least digits too", async () => {
    const use = async (page: Page): Promise<void> => {
      await resize(page, { width: 390, height: 844 });
      const controls = page.locator("button, select, input:not([type=radio]), .switch label");
      const boxes = await Promise.all((await controls.all()).map((each) => each.boundingBox()));
      const shown = boxes.filter((box) => box !== null);
      expect(shown.length).toBeGreaterThan(10);
      expect(shown.filter(({ width, height }) => width < 24 || height < 24)).toEqual([]);
    };
    await on("ranks=8&count=1&collective=broadcast&root=1", use, still);
  });
});
