// The interop scenario with kafkajs: every step prints `ok STEP` (or `skip STEP: reason`); anything unexpected throws.
// Steps are named alike in the programs of all languages (see tests/tests/clients.rs).
'use strict'

const assert = require('node:assert')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')

const PER_CODEC = 200
const PARTITIONS = 4
const LIMIT_MS = 60000

const codecs = new Map([['none', CompressionTypes.None], ['gzip', CompressionTypes.GZIP]])
const missing = new Map()

// kafkajs brings gzip; the others are packages that may not exist for this platform.
function register(name, type, load) {
  try {
    CompressionCodecs[type] = load()
    codecs.set(name, type)
  } catch (error) {
    missing.set(name, `no prebuilt package works here: ${error.message.split('\n')[0]}`)
  }
}
register('snappy', CompressionTypes.Snappy, () => require('kafkajs-snappy'))
register('lz4', CompressionTypes.LZ4, () => {
  const lz4 = require('lz4-napi')
  return () => ({
    compress: encoder => lz4.compressFrame(encoder.buffer),
    decompress: buffer => lz4.decompressFrame(buffer),
  })
})
register('zstd', CompressionTypes.ZSTD, () => {
  const zstd = require('@mongodb-js/zstd')
  return () => ({
    compress: encoder => zstd.compress(encoder.buffer),
    decompress: buffer => zstd.decompress(buffer),
  })
})

const ok = step => console.log(`ok ${step}`)
const value = (mark, number) => `${mark}-${number}-${'padding '.repeat(8)}`
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

async function until(what, done) {
  const limit = Date.now() + LIMIT_MS
  while (!(await done())) {
    assert(Date.now() < limit, `${what}: not in time`)
    await sleep(50)
  }
}

async function scenario(bootstrap, topic) {
  const kafka = new Kafka({ clientId: 'interop', brokers: [bootstrap], logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: 1 }], waitForLeaders: true })
  const described = await admin.fetchTopicMetadata({ topics: [topic] })
  assert.strictEqual(described.topics[0].partitions.length, PARTITIONS)
  ok('create')

  const producer = kafka.producer({ allowAutoTopicCreation: false })
  await producer.connect()
  const produce = async (compression, mark) => {
    const messages = []
    for (let number = 0; number < PER_CODEC; number++) {
      messages.push({ key: `k${number}`, value: value(mark, number), partition: number % PARTITIONS, headers: { codec: mark } })
    }
    await producer.send({ topic, compression, messages })
  }
  const expected = new Set()
  for (const [name, type] of codecs) {
    await produce(type, name)
    for (let number = 0; number < PER_CODEC; number++) expected.add(value(name, number))
    ok(`produce.${name}`)
  }
  for (const [name, reason] of missing) console.log(`skip produce.${name}: ${reason}`)

  const groupId = `${topic}-group`
  const values = new Set()
  const twice = []
  const member = async seen => {
    const consumer = kafka.consumer({ groupId, heartbeatInterval: 500, sessionTimeout: 10000, rebalanceTimeout: 10000 })
    const state = { consumer, partitions: [] }
    consumer.on(consumer.events.GROUP_JOIN, event => { state.partitions = event.payload.memberAssignment[topic] || [] })
    await consumer.connect()
    await consumer.subscribe({ topics: [topic], fromBeginning: true })
    await consumer.run({
      autoCommitInterval: 100,
      eachMessage: async ({ message }) => {
        const text = message.value.toString()
        if (seen.has(text)) twice.push(text)
        seen.add(text)
      },
    })
    return state
  }
  const committed = async () => {
    const [found] = await admin.fetchOffsets({ groupId, topics: [topic] })
    return found.partitions.reduce((sum, part) => sum + Math.max(0, Number(part.offset)), 0)
  }

  const first = await member(values)
  await until('the first member', async () => values.size >= expected.size && (await committed()) === expected.size)
  assert.deepStrictEqual(values, expected)
  ok('consume')

  const second = await member(values)
  await until('the rebalance', () => first.partitions.length === 2 && second.partitions.length === 2)
  assert.strictEqual(new Set([...first.partitions, ...second.partitions]).size, PARTITIONS)
  await produce(CompressionTypes.GZIP, 'second')
  const total = expected.size + PER_CODEC
  await until('both members', async () => values.size === total && (await committed()) === total)
  assert.deepStrictEqual(twice, [])
  ok('rebalance')

  await second.consumer.disconnect()
  await until('taking over', () => first.partitions.length === PARTITIONS)
  await first.consumer.disconnect()
  ok('takeover')

  assert.strictEqual(await committed(), total)
  ok('commit')

  await produce(CompressionTypes.None, 'third')
  const rest = new Set()
  const restarted = await member(rest)
  await until('after the restart', () => rest.size >= PER_CODEC)
  await restarted.consumer.disconnect()
  const third = new Set()
  for (let number = 0; number < PER_CODEC; number++) third.add(value('third', number))
  assert.deepStrictEqual(rest, third)
  ok('restart')

  await producer.disconnect()
  await admin.disconnect()
}

scenario(process.argv[3], process.argv[4]).then(
  () => process.exit(0),
  error => {
    console.error(error)
    process.exit(1)
  },
)
