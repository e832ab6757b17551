/** Slightly malformed frames, in any order and length. */

import fc from "fast-check";
import { closePayload, rawFrame } from "./raw-frames.ts";

/** Values at which a sum, a sign, a double or a 32-bit number overflows, and this project's own sizes. */
const EDGES = [2n ** 64n, 2n ** 63n, 2n ** 53n, 2n ** 32n, 2n ** 31n, 2n ** 21n, 2n ** 20n, 2n ** 16n];
/** Offsets around each value: the header sizes of frames, with and without a mask. */
const OFFSETS = [-15n, -14n, -13n, -10n, -8n, -6n, -4n, -2n, -1n, 0n, 1n];

const HOSTILE_LENGTHS = EDGES.flatMap((edge) => OFFSETS.map((by) => edge + by)).filter((length) => length < 2n ** 64n);

const sized = (...lengths: number[]) => fc.constantFrom(...lengths).map((length) => Buffer.alloc(length, 97));

const payload = fc.oneof(
  { weight: 20, arbitrary: fc.uint8Array({ maxLength: 130 }) },
  { weight: 20, arbitrary: fc.string({ unit: "binary", maxLength: 60 }).map((text) => Buffer.from(text)) },
  { weight: 8, arbitrary: sized(125, 126, 127, 65_535, 65_536) },
  { weight: 1, arbitrary: sized(300_000, 1_048_576, 1_048_577, 2_097_152, 2_097_153) },
  {
    weight: 10,
    arbitrary: fc
      .tuple(fc.integer({ min: 0, max: 5100 }), fc.uint8Array({ maxLength: 8 }))
      .map(([code, reason]) => closePayload(code, reason)),
  },
);

/** A mostly valid frame, so that an invalid frame can follow any valid sequence. */
const frame = fc
  .record({
    fin: fc.oneof({ weight: 3, arbitrary: fc.constant(true) }, { weight: 1, arbitrary: fc.constant(false) }),
    opcode: fc.oneof(
      { weight: 12, arbitrary: fc.constantFrom(0, 1, 1, 1, 2, 8, 9, 9, 10) },
      { weight: 1, arbitrary: fc.nat(15) },
    ),
    payload,
    mask: fc.oneof(
      { weight: 20, arbitrary: fc.integer({ min: 0, max: 0xffffffff }) },
      { weight: 1, arbitrary: fc.constant(null) },
    ),
    rsv: fc.oneof({ weight: 20, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat(7) }),
    lengthBytes: fc.constantFrom("fewest" as const, 8 as const),
    claimed: fc.oneof(
      { weight: 8, arbitrary: fc.constant(null) },
      { weight: 1, arbitrary: fc.constantFrom(...HOSTILE_LENGTHS) },
    ),
  })
  .map(({ lengthBytes, claimed, ...rest }) =>
    rawFrame({
      ...rest,
      ...(lengthBytes === 8 ? { lengthBytes } : {}),
      ...(claimed === null ? {} : { claimed }),
    }),
  );

export const hostileFrames = fc.array(frame, { minLength: 1, maxLength: 8 }).map((all): Buffer => Buffer.concat(all));

/** One message of each length, with only its header. */
export const HOSTILE_HEADS = HOSTILE_LENGTHS.map((claimed) => rawFrame({ opcode: 1, claimed }));
