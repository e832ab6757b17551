import type { IUnicodeVersionProvider, Terminal } from "@xterm/headless";

/** Widths of emoji, which the tables of the emulator lack. The console and current terminals draw emoji in two columns. */

const VERSION = "procwire-emoji";
const VARIATION_SELECTOR = 0xfe0f;
const JOINER = 0x200d;

/** Kind of a character in the state of the provider. */
const Kind = { other: 0, emoji: 1, joiner: 2 } as const;

/** Makes the emulator draw emoji in two columns, and emoji sequences as one character. */
export function useEmojiWidths(terminal: Terminal): void {
  const { unicode } = terminal;
  const base = baseProvider(terminal);
  const provider: IUnicodeVersionProvider = {
    version: VERSION,
    wcwidth: (code) => (isWideEmoji(code) ? 2 : base.wcwidth(code)),
    charProperties: (code, preceding) => {
      const precedingKind = preceding >> 3;
      const precedingWidth = (preceding >> 1) & 3;
      // An emoji after a joiner, and a skin tone, belong to the emoji before.
      const continues = precedingKind === Kind.joiner || (precedingKind === Kind.emoji && isSkinTone(code));
      if (continues && isEmoji(code)) return properties(Kind.emoji, Math.max(2, precedingWidth), true);
      if (precedingKind === Kind.emoji && code === VARIATION_SELECTOR) return properties(Kind.emoji, 2, true);
      if (precedingKind === Kind.emoji && code === JOINER) return properties(Kind.joiner, precedingWidth, true);
      if (isWideEmoji(code)) return properties(Kind.emoji, 2, false);
      const found = base.charProperties(code, preceding);
      return isEmoji(code) ? properties(Kind.emoji, (found >> 1) & 3, (found & 1) === 1) : found;
    },
  };
  unicode.register(provider);
  unicode.activeVersion = VERSION;
}

/** Returns the provider that the emulator uses by default. */
function baseProvider(terminal: Terminal): IUnicodeVersionProvider {
  const { _core } = terminal as unknown as { _core: { unicodeService: { _activeProvider: IUnicodeVersionProvider } } };
  return _core.unicodeService._activeProvider;
}

/** Encodes the properties as the emulator does. */
function properties(kind: number, width: number, shouldJoin: boolean): number {
  return (kind << 3) | (width << 1) | (shouldJoin ? 1 : 0);
}

/** First code point that may be an emoji of two columns: U+231A, a watch. */
const FIRST_WIDE = 0x231a;
/** First code point that may be an emoji besides ASCII. */
const FIRST_EMOJI = 0xa9;
const cache = new Map<number, { isEmoji: boolean; isWide: boolean }>();

function isWideEmoji(code: number): boolean {
  return code >= FIRST_WIDE && lookUp(code).isWide;
}

function isEmoji(code: number): boolean {
  return code >= FIRST_EMOJI && lookUp(code).isEmoji;
}

function isSkinTone(code: number): boolean {
  return code >= 0x1f3fb && code <= 0x1f3ff;
}

function lookUp(code: number): { isEmoji: boolean; isWide: boolean } {
  // CJK, Hangul and private characters are frequent, and no emoji.
  if (code > 0x3299 && code < 0x1f004) return NO_EMOJI;
  let found = cache.get(code);
  if (!found) {
    const text = String.fromCodePoint(code);
    const isWide = /\p{Emoji_Presentation}/u.test(text) && !/\p{Regional_Indicator}/u.test(text);
    found = { isEmoji: /\p{Emoji}/u.test(text), isWide };
    cache.set(code, found);
  }
  return found;
}

const NO_EMOJI = { isEmoji: false, isWide: false };
