// GGUF files in JavaScript, for tests that make their own models: reads the metadata, writes a file.

const KINDS = { u8: 0, i8: 1, u16: 2, i16: 3, u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9, u64: 10, i64: 11, f64: 12 };
const NAMES = Object.keys(KINDS);
const ALIGNMENT = 32;

// ---- Reading -------------------------------------------------------------------------------------

// A map from key to { kind, value }, and for arrays { kind: 'array', of, value }.
export function readMetadata(bytes) {
  let at = 8;
  const u32 = () => bytes.readUInt32LE((at += 4) - 4);
  const u64 = () => Number(bytes.readBigUInt64LE((at += 8) - 8));
  const string = () => {
    const n = u64();
    return bytes.toString('utf8', at, (at += n));
  };
  const readers = {
    u8: () => bytes.readUInt8(at++), i8: () => bytes.readInt8(at++),
    u16: () => bytes.readUInt16LE((at += 2) - 2), i16: () => bytes.readInt16LE((at += 2) - 2),
    u32, i32: () => bytes.readInt32LE((at += 4) - 4), f32: () => bytes.readFloatLE((at += 4) - 4),
    bool: () => bytes.readUInt8(at++) !== 0, string,
    u64, i64: () => Number(bytes.readBigInt64LE((at += 8) - 8)), f64: () => bytes.readDoubleLE((at += 8) - 8),
  };
  u64(); // the number of tensors
  const pairs = new Map();
  for (let n = u64(); n > 0; n--) {
    const key = string();
    const kind = NAMES[u32()];
    if (kind === 'array') {
      const of = NAMES[u32()];
      pairs.set(key, { kind, of, value: Array.from({ length: u64() }, readers[of]) });
    } else {
      pairs.set(key, { kind, value: readers[kind]() });
    }
  }
  return pairs;
}

// ---- Writing -------------------------------------------------------------------------------------

function write(kind, value, of) {
  if (kind === 'string') {
    const chars = Buffer.from(value);
    return Buffer.concat([write('u64', chars.length), chars]);
  }
  if (kind === 'array') return Buffer.concat([write('u32', KINDS[of]), write('u64', value.length), ...value.map((v) => write(of, v))]);
  const b = Buffer.alloc(8);
  const end = {
    u8: () => b.writeUInt8(value), i8: () => b.writeInt8(value), u16: () => b.writeUInt16LE(value), i16: () => b.writeInt16LE(value),
    u32: () => b.writeUInt32LE(value), i32: () => b.writeInt32LE(value), f32: () => b.writeFloatLE(value), bool: () => b.writeUInt8(value ? 1 : 0),
    u64: () => b.writeBigUInt64LE(BigInt(value)), i64: () => b.writeBigInt64LE(BigInt(value)), f64: () => b.writeDoubleLE(value),
  }[kind]();
  return b.subarray(0, end);
}

// metadata: as readMetadata gives it; tensors: [{ name, shape, data: Float32Array }], rows one after the other.
export function writeGguf(metadata, tensors) {
  const parts = [Buffer.from('GGUF'), write('u32', 3), write('u64', tensors.length), write('u64', metadata.size)];
  for (const [key, { kind, value, of }] of metadata) parts.push(write('string', key), write('u32', KINDS[kind]), write(kind, value, of));
  let offset = 0;
  const padding = (n) => Buffer.alloc((ALIGNMENT - (n % ALIGNMENT)) % ALIGNMENT);
  for (const { name, shape, data } of tensors) {
    parts.push(write('string', name), write('u32', shape.length), ...shape.map((n) => write('u64', n)), write('u32', 0), write('u64', offset));
    offset += data.byteLength + padding(data.byteLength).length;
  }
  parts.push(padding(parts.reduce((n, part) => n + part.length, 0)));
  for (const { data } of tensors) parts.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength), padding(data.byteLength));
  return Buffer.concat(parts);
}
