import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { contrast } from "../support/web/contrast.ts";

const TOKENS = readFileSync("src/web/tokens.css", "utf8");
const THEMES = ["light", "dark"] as const;
/** WCAG AA for text, and for the frames of inputs. */
const MIN_TEXT_CONTRAST = 4.5;
const MIN_FRAME_CONTRAST = 3;

const SURFACES = ["page", "surface", "raised"];

test("every text color has readable contrast on its backgrounds in both themes", () => {
  const pairs = [
    ...["text", "muted", "accent", "success", "warning", "danger"].flatMap((text) =>
      SURFACES.map((surface) => [text, surface] as const),
    ),
    ["text", "hover"],
    ["muted", "hover"],
    ["on-primary", "primary"],
    ["on-primary", "primary-hover"],
    ["accent", "accent-soft"],
    ...["success", "warning", "danger", "neutral"].map((tone) => [tone, `${tone}-soft`] as const),
  ] as const;
  for (const theme of THEMES) {
    const unreadable = pairs.filter(
      ([text, surface]) => contrast(color(text, theme), color(surface, theme)) < MIN_TEXT_CONTRAST,
    );
    assert.deepEqual(unreadable, [], theme);
    for (const surface of SURFACES)
      assert.ok(contrast(color("border-strong", theme), color(surface, theme)) >= MIN_FRAME_CONTRAST, theme);
  }
});

test("stylesheets of the console define colors in the tokens only, and use only defined tokens", () => {
  const defined = new Set([...TOKENS.matchAll(/^\s*(--[\w-]+):/gm)].map(([, name]) => name));
  for (const file of globSync("src/web/**/*.css")) {
    const css = readFileSync(file, "utf8").replace(/\/\*[\s\S]*?\*\//g, "");
    if (!file.endsWith("tokens.css")) assert.doesNotMatch(css, /#[0-9a-f]{3,8}\b(?!.*\{)|rgba?\(|hsla?\(/i, file);
    // Set on the element by the script, which needs the height too.
    const used = [...css.replaceAll("var(--row-height)", "").matchAll(/var\((--[\w-]+)/g)].map(([, name]) => name);
    assert.deepEqual(
      used.filter((name) => !defined.has(name)),
      [],
      file,
    );
  }
});

function color(name: string, theme: (typeof THEMES)[number]): string {
  const value = new RegExp(`--color-${name}: ([^;]+);`).exec(TOKENS)?.[1] ?? "";
  const colors = value.match(/#[0-9a-f]{6}/g) ?? [];
  const found = theme === "dark" ? colors.at(-1) : colors[0];
  assert.ok(found, `no color --color-${name} in ${value}`);
  return found;
}
